"""Which inputs Hypothesis draws: the same at every run, so that a change is what makes a test fail.

`HYPOTHESIS_PROFILE=explore make test` draws new ones and more of them; what it finds becomes an `@example`.
"""

import os

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=300, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

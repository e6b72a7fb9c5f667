"""How a solve can end."""

from __future__ import annotations

from enum import Enum


class Status(Enum):
    """How a solve ended. Each member carries its message and what to try."""

    SUCCESS = ("the solve reached the last time", "")
    TOLERANCE_RAISED = (
        "the solve reached the last time, with rtol raised to what the dtype of the state carries",
        "use float64 for a smaller rtol",
    )
    NOISY = (
        "the solve reached the last time, but f is random: two values at one place differ, and no error was controlled",
        "put modules with dropout to eval(), or draw noise once for a whole solve",
    )
    EVENT = ("a terminal event ended the solve", "")
    NO_EVENT = (
        "no event was found",
        "look at the signs of the event function along the solution: `solve` with a last time shows it",
    )
    MAX_STEPS = (
        "the number of steps reached its limit",
        "raise `max_num_steps` (`max_steps` in `solve`), see that f does not jump in y (sign, round), loosen rtol and "
        "atol if it does not, use 'auto' or 'bdf' if the problem is stiff and the method explicit",
    )
    STEP_UNDERFLOW = (
        "underflow in dt: the step became smaller than the rounding of the time",
        "f may jump (in t: give `jump_t`; in y: make it continuous), be nan just ahead, or its solution grow without "
        "bound (if it should not, tighten atol): look at f near there; else loosen rtol and atol, use float64, or "
        "'bdf' if the method is explicit and the problem stiff",
    )
    RANDOM = (
        "f is random: two values at the same time and state differ",
        "put modules with dropout to eval(), draw noise once for a whole solve, or take fixed explicit steps ('rk4')",
    )
    NON_FINITE = (
        "a value became nan or infinite",
        "look at f there first (a division, a log, a root?), or its parameters: a loss that overflowed before; else "
        "take smaller steps, or a proximal method if the problem is stiff",
    )
    INNER_MAX_ITERATIONS = (
        "the inner solver used all its iterations without reaching its tolerance",
        "raise `inner_max_iters`, loosen rtol and atol, which the tolerance of equations follows without `inner_tol`, "
        "take smaller steps, or choose a faster inner solver ('newton' up to some thousand unknowns, else "
        "'newton_krylov')",
    )
    INNER_DIVERGED = (
        "the inner solver diverged",
        "take smaller steps, lower `inner_lr` or leave it out, or choose another inner solver ('newton' up to some "
        "thousand unknowns, else 'newton_krylov')",
    )
    INNER_OUTSIDE_RADIUS = (
        "the fixed-point iteration expands: gamma times the Lipschitz constant of f is not below one",
        "take smaller steps or choose another inner solver: 'anderson', 'newton_krylov', 'fr'",
    )
    INNER_NOT_SYMMETRIC = (
        "the Jacobian of f is not symmetric, which conjugate gradients need",
        "leave out `inner`, or choose 'newton' (up to some thousand unknowns), 'anderson', 'newton_krylov'",
    )
    INNER_STAGNATED = (
        "the inner solver stopped making progress above its tolerance",
        "see that f does not jump in y (sign, round); loosen rtol and atol, which the tolerance of equations follows "
        "without `inner_tol`, take smaller steps, use float64, or choose another inner solver ('newton' up to some "
        "thousand unknowns, else 'newton_krylov')",
    )
    INNER_NON_FINITE = (
        "the inner solver met a nan or infinite value",
        "take smaller steps, lower `inner_lr` or leave it out, or look at f near there",
    )
    INNER_NO_DERIVATIVE = (
        "an equation was not solved, and the derivative of f is nan or infinite there",
        "look at f there: a sqrt or a power below one at 0? Add a small number below the root, `torch.sqrt(y + 1e-6)`, "
        "begin as far from 0, or take explicit steps ('dopri5'), which need no derivative",
    )
    INNER_AT_FAULT = (
        "the inner solver has solved no equation yet, and one plain iteration comes nearer to solving this one: it is "
        "at fault, not the step",
        "leave out `inner_lr` and `inner_eta`; in a solver of your own look for a wrong sign, for z - lr * r with a "
        "small lr lowers the residual r = z - anchor - gamma f(t, z)",
    )

    BACKWARD_NOT_CONVERGED = (
        "the transposed linear solve of the gradient did not converge",
        "take smaller steps or use float64",
    )

    BACKWARD_NON_FINITE = (
        "the gradient that came into backward holds nan or infinite values",
        "look at the loss, and at what follows the solve; a scaled loss may have overflowed",
    )

    BACKWARD_NO_DERIVATIVE = (
        "a derivative of f is nan or infinite",
        "look at f there: a sqrt or a power below one at 0 (also in a norm that is written as the root of a sum: that "
        "of torch.linalg.vector_norm is 0 there), or a torch.where whose other branch has none (put a harmless "
        "argument into that branch: its derivative comes in times zero, and zero times nan is nan)",
    )

    DIRECT_NOT_CONVERGED = (
        "the iterations that gradient='direct' records did not settle",
        "use gradient='implicit', whose cost does not depend on them, or take smaller steps",
    )

    def __init__(self, message: str, advice: str) -> None:
        self.message = message
        self.advice = advice

    @property
    def ok(self) -> bool:
        """Whether the solve did what was asked."""
        return self in (Status.SUCCESS, Status.EVENT, Status.TOLERANCE_RAISED, Status.NOISY)

    @property
    def final(self) -> bool:
        """Whether no shorter step can mend it."""
        return self in (Status.RANDOM, Status.INNER_NO_DERIVATIVE, Status.INNER_AT_FAULT)

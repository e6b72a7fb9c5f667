"""Models of stiff equations that are trained through the solver, and what trains them."""

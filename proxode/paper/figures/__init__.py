"""Pictures of the experiments, drawn from their reports and from nothing else; one file for each experiment."""

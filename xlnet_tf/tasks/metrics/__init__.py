"""The metrics of each task, from arrays of outputs and answers; one file for each task."""

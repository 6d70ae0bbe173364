"""Lock providers: each excludes the writers of one table in its own way, known by Hudi's keys and class names."""

"""The YAML form of a scenario, one file for each part; `edgewise schema` prints it."""

"""From TOML, mappings, the environment and Samza's flat keys to one checked model."""

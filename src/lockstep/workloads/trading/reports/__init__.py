"""How a policy is judged and shown: baselines, comparison tables, charts, blotter and progress lines."""

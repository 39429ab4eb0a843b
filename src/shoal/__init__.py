"""Shoal runs all accelerators of an organisation as one shared, explainable pool on Kubernetes."""

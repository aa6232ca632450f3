"""Searchers that propose float witnesses for both ends of a bracket; nothing here is trusted."""

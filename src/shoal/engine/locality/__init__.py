"""Matching with data: which hosts have which files, which ready tasks read them, and who waits for whom [CMS IV.E]."""

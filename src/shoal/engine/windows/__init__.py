"""Leaders of meshes, and the windows of tasks that meshes are granted, to be begun while the server is away [ADR 0056]."""

"""The distributed hash table of a site's pilots: who may have a file [LBO III.A]. Pure: no clock, socket or chance of its own."""

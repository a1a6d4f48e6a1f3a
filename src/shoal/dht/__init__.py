"""The distributed hash table of a site's pilots: who may have a file [LBO D2]. Pure: no clock, socket or chance of its own."""

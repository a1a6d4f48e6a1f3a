"""Messages of every conversation and their encoding. Standard library only, Python 3.9 valid, but codec_fast."""

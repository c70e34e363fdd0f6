"""The HTTP service and its page (pip install 'mgformer[serve]')."""

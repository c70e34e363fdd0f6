"""GOTNet and what serves it alone."""

from mgformer.models.gotnet.model import GOTNet

__all__ = ["GOTNet"]

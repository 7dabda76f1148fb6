"""Add-ons: what can be taken out; ``main/addons/__init__.py`` names them."""

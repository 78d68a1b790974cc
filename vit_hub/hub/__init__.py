"""The one folder that timm and transformers both open, and its way to and from the Hub."""

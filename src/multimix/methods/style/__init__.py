"""StyleMix and StyleCutMix: content and style mixed apart, through an encoder and a decoder."""

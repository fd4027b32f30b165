"""The conformance kit: cases for every role of the SPI, in pytest and without it."""

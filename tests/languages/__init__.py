"""The contract in other languages: the examples in JavaScript and Go, and generated code."""

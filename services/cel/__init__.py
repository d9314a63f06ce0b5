"""CEL expressions that select devices, evaluated by cel-expr-python."""

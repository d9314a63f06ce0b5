"""What a recording of a real cluster tells: inputs and observations, from whatever it came."""

"""Small services that keep every rule of the contract, and can break any one of them."""

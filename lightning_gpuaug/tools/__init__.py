"""What is done to data before it is trained on: scanning it, converting it, auditing the plan over it."""

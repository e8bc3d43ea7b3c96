"""Ways to sum what the parties send. Each is a `coordinator.Participants` over a transport."""

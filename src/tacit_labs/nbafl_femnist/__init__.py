"""FederatedScope's table of NbAFL on FEMNIST, with the epsilons that hold."""

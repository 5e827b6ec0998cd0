"""Problems that models are trained on, one package each, and the contract they follow."""

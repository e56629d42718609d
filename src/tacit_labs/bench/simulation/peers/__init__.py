"""The two jobs of the simulation benchmark, as each library does them: the sides of ``tacit bench simulation``.

``python -m tacit_labs.bench.simulation.peers NAME --job device --rounds 3 --data FILE`` runs one side in a process of
its own and prints one line of JSON. A peer's code is written as its users write it, so the rules of Tacit's other rooms
(where randomness and optimisers come from) don't hold here. A peer may live in another environment: of Tacit only this
package and the standard library are imported on its side.
"""

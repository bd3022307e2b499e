from ._rule import find_hand_written as find_hand_written

from ._all_rules import OUTSIDE as OUTSIDE
from ._all_rules import RACES as RACES
from ._all_rules import RULES as RULES
from ._all_rules import Rule as Rule

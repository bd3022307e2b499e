from ._constants import Constants as Constants
from ._content import Content as Content
from ._content import describe_content as describe_content
from ._find_constants import constants_of as constants_of
from ._value_changes import Change as Change
from ._value_changes import find_changed_value as find_changed_value

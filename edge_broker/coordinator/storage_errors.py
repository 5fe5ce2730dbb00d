"""Map the error of a record that could not be stored to the one that clients receive.

Contains: Kafka's own mapping from errors of the log to answers of the coordinator. Does not contain: storage.
"""

from edge_broker.errors import ErrorCode

_ANSWERS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


def group_error(error: ErrorCode) -> ErrorCode:
    """Return the error for members if the group's metadata could not be stored."""
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in _TOO_LARGE else _ANSWERS.get(error, error)


def commit_error(error: ErrorCode) -> ErrorCode:
    """Return the error for a consumer if its offsets could not be stored."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error in _TOO_LARGE else _ANSWERS.get(error, error)

"""The meaning of EC2's errors: the kind of outcome that each one is."""

from collections.abc import Iterable

from botocore import exceptions
from botocore.parsers import ResponseParserError

from muster.autoscaling.standing import CreateOutcome
from muster.providers.provider import ProviderError

MISMATCH = "IdempotentParameterMismatch"
"""The client token came before with other parameters: the instances of that call may exist."""
_CODES = {
    CreateOutcome.STOCK_OUT: (
        "InsufficientAddressCapacity",
        "InsufficientCapacity",
        "InsufficientCapacityOnHost",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientVolumeCapacity",
        "ReservationCapacityExceeded",
        "SpotInstanceShutdown",
        "SpotInstanceTermination",
        "SpotMaxPriceTooLow",
    ),
    CreateOutcome.QUOTA: (
        "InstanceLimitExceeded",
        "MaxIOPSLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "NetworkInterfaceLimitExceeded",
        "PrivateIpAddressLimitExceeded",
        "ResourceLimitExceeded",
        "VcpuLimitExceeded",
        "VolumeLimitExceeded",
    ),
    CreateOutcome.THROTTLED: (
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    ),
    CreateOutcome.CREDENTIALS: (
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "Blocked",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "MissingAuthenticationToken",
        "OptInRequired",
        "PendingVerification",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    ),
    CreateOutcome.UNKNOWN: (MISMATCH,),
}
"""Codes whose meaning does not follow from the status of the answer: EC2 tells want of stock with
status 500, and too many requests with 503."""
_OUTCOMES = {code: outcome for outcome, codes in _CODES.items() for code in codes}
ELSEWHERE = ("Unsupported",)
"""Codes that may hold for one availability zone only, beside those that are want of stock."""
_CREDENTIALS = (
    exceptions.CredentialRetrievalError,
    exceptions.LoginError,
    exceptions.NoAuthTokenError,
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.ProfileNotFound,
    exceptions.SSOError,
    exceptions.TokenRetrievalError,
)
_NO_ANSWER = (
    exceptions.HTTPClientError,
    exceptions.ConnectionError,
    ResponseParserError,
    OSError,
)
BOTO_ERRORS = (exceptions.BotoCoreError, exceptions.ClientError, ResponseParserError, OSError)
"""The errors that a call of boto3 may raise."""


class Ec2Error(ProviderError):
    """A call that EC2 refused, or did not answer.

    Args:
        code: EC2's; empty where there was no answer.
    """

    def __init__(self, outcome: CreateOutcome, told: str, code: str = "") -> None:
        super().__init__(outcome, told)
        self.code = code


def outcome_of(code: str, status: int) -> CreateOutcome:
    """The kind of outcome that an error of EC2 is. A refusal that is not known by its code promises
    that nothing was made, an error of EC2 itself does not.

    Args:
        status: of the HTTP answer.
    """
    if code in _OUTCOMES:
        return _OUTCOMES[code]
    return CreateOutcome.BAD_REQUEST if 400 <= status < 500 else CreateOutcome.UNKNOWN


def fate_of(codes: Iterable[str]) -> CreateOutcome:
    """The kind of outcome that instances met which ended by themselves.

    Args:
        codes: of their state reasons, such as ``Server.InsufficientInstanceCapacity``.
    """
    bare = [code.partition(".")[2] for code in codes]
    return next((_OUTCOMES[code] for code in bare if code in _OUTCOMES), CreateOutcome.UNKNOWN)


def ec2_error(error: Exception) -> Ec2Error:
    """The error that one of ``BOTO_ERRORS`` is. No parameter of the call is told, as user data is
    among them."""
    if isinstance(error, exceptions.ClientError):
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500))
        message = str(error.response.get("Error", {}).get("Message", ""))
        return Ec2Error(outcome_of(code, status), f"{code}: {message}", code)
    if isinstance(error, _CREDENTIALS):
        return Ec2Error(CreateOutcome.CREDENTIALS, str(error))
    if isinstance(error, exceptions.ParamValidationError):
        return Ec2Error(CreateOutcome.BAD_REQUEST, "boto3 refuses the parameters")
    if isinstance(error, _NO_ANSWER):
        return Ec2Error(CreateOutcome.UNKNOWN, f"no answer: {error}")
    return Ec2Error(CreateOutcome.BAD_REQUEST, str(error))

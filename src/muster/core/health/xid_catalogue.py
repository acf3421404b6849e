"""NVIDIA's catalogue of Xids: what each number means, and the action that it asks for at once
(source: Xid Catalog).

Numbers that the catalogue calls unused are not here, and are treated like numbers that it does not
have. Descriptions are in Muster's words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from muster.core.health.remedy import Remedy


class XidAction(StrEnum):
    """The action that follows an Xid, in ascending order of what it costs."""

    IGNORE = "ignore"
    APPLICATION = "application"  # the work is restarted, the GPU is not touched
    WORKFLOW = "workflow"  # depends on what came with it
    CHECK = "check"  # the machine is taken out of work and checked
    RESET = "reset"  # of the GPU
    REBOOT = "reboot"  # of the machine
    OPERATOR = "operator"  # a person has to look


OF_ACTION: Mapping[XidAction, Remedy] = {
    XidAction.CHECK: Remedy.CHECK,
    XidAction.RESET: Remedy.RESET,
    XidAction.REBOOT: Remedy.REBOOT,
    XidAction.OPERATOR: Remedy.OPERATOR,
}
"""The remedies by the actions that ask for one; what is ignored, and what is the application's own
affair, asks for none."""


@dataclass(frozen=True, slots=True)
class Xid:
    """One number of the catalogue.

    Args:
        bucket: NVIDIA's name of the immediate action; empty where the catalogue gives none.
    """

    number: int
    mnemonic: str
    description: str
    bucket: str

    @property
    def action(self) -> XidAction:
        return ACTIONS[self.bucket]


ACTIONS: Mapping[str, XidAction] = {
    "IGNORE": XidAction.IGNORE,
    "RESTART_APP": XidAction.APPLICATION,
    "RESET_GPU": XidAction.RESET,
    "RESTART_VM": XidAction.REBOOT,
    "RESTART_BM": XidAction.REBOOT,
    "WORKFLOW_XID_45": XidAction.WORKFLOW,
    "WORKFLOW_XID_48": XidAction.WORKFLOW,
    "WORKFLOW_NVLINK_ERR": XidAction.WORKFLOW,
    "WORKFLOW_NVLINK5_ERR": XidAction.WORKFLOW,
    "XID_154": XidAction.WORKFLOW,
    "CHECK_UVM": XidAction.WORKFLOW,
    "CHECK_MECHANICALS": XidAction.OPERATOR,
    "UPDATE_SWFW": XidAction.OPERATOR,
    "CONTACT_SUPPORT": XidAction.OPERATOR,
    "": XidAction.CHECK,
}
"""The action for each of NVIDIA's buckets."""

_TABLE: tuple[tuple[int, str, str, str], ...] = (
    (8, "ROBUST_CHANNEL_FIFO_ERROR_IDLE_TIMEOUT", "a channel made no progress", "RESTART_APP"),
    (11, "ROBUST_CHANNEL_GR_ERROR_MISSING_HW", "invalid stream of commands", "RESTART_APP"),
    (13, "ROBUST_CHANNEL_GR_EXCEPTION", "exception of the graphics engine", "RESTART_APP"),
    (14, "ROBUST_CHANNEL_FAKE_ERROR", "error injected by a program", "IGNORE"),
    (25, "ROBUST_CHANNEL_GR_ILLEGAL_NOTIFY", "illegal stream of commands", "RESTART_APP"),
    (31, "ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT", "page fault of GPU memory", "RESTART_APP"),
    (32, "ROBUST_CHANNEL_PBDMA_ERROR", "corrupted stream of commands over PCIe", "RESTART_APP"),
    (37, "ROBUST_CHANNEL_FECS_ERR_UNIMP_FIRMWARE_METHOD", "error of the firmware", "IGNORE"),
    (38, "ROBUST_CHANNEL_FECS_ERR_WATCHDOG_TIMEOUT", "watchdog of the firmware", "IGNORE"),
    (39, "ROBUST_CHANNEL_CE0_ERROR", "exception of copy engine 0", "RESTART_APP"),
    (40, "ROBUST_CHANNEL_CE1_ERROR", "exception of copy engine 1", "RESTART_APP"),
    (41, "ROBUST_CHANNEL_CE2_ERROR", "exception of copy engine 2", "RESTART_APP"),
    (43, "ROBUST_CHANNEL_RESETCHANNEL_VERIF_ERROR", "a program's fault; the GPU is fine", "IGNORE"),
    (44, "ROBUST_CHANNEL_GR_FAULT_DURING_CTXSW", "fault during a switch of contexts", "IGNORE"),
    (45, "ROBUST_CHANNEL_PREEMPTIVE_REMOVAL", "clean-up after another error", "WORKFLOW_XID_45"),
    (46, "ROBUST_CHANNEL_GPU_TIMEOUT_ERROR", "the GPU made no progress", "RESET_GPU"),
    (48, "ROBUST_CHANNEL_GPU_ECC_DBE", "uncorrectable error of memory", "WORKFLOW_XID_48"),
    (54, "SILENT_RUNNING_PWR_REDUCED_CLOCKING", "power cable missing", "CHECK_MECHANICALS"),
    (60, "ROBUST_CHANNEL_SEC2_ERROR", "exception of the video processor", "RESTART_APP"),
    (62, "PMU_HALT_ERROR", "the power microcontroller halted", "RESET_GPU"),
    (63, "INFOROM_DRAM_RETIREMENT_EVENT", "a row of memory is remapped", "IGNORE"),
    (64, "INFOROM_DRAM_RETIREMENT_FAILURE", "a row of memory cannot be remapped", "RESET_GPU"),
    (66, "ROBUST_CHANNEL_FECS_ERR_REG_ACCESS_VIOLATION", "illegal access by the driver", "IGNORE"),
    (67, "ROBUST_CHANNEL_FECS_ERR_VERIF_VIOLATION", "illegal access by the driver", "IGNORE"),
    (68, "ROBUST_CHANNEL_NVDEC0_ERROR", "exception of video decoder 0", "RESTART_APP"),
    (69, "ROBUST_CHANNEL_GR_CLASS_ERROR", "class error of the graphics engine", "RESTART_APP"),
    (70, "ROBUST_CHANNEL_CE3_ERROR", "error of copy engine 3", "RESTART_APP"),
    (71, "ROBUST_CHANNEL_CE4_ERROR", "error of copy engine 4", "RESTART_APP"),
    (72, "ROBUST_CHANNEL_CE5_ERROR", "error of copy engine 5", "RESTART_APP"),
    (74, "NVLINK_ERROR", "error of an NVLink", "WORKFLOW_NVLINK_ERR"),
    (75, "ROBUST_CHANNEL_CE6_ERROR", "error of copy engine 6", "RESTART_APP"),
    (76, "ROBUST_CHANNEL_CE7_ERROR", "error of copy engine 7", "RESTART_APP"),
    (77, "ROBUST_CHANNEL_CE8_ERROR", "error of copy engine 8", "RESTART_APP"),
    (78, "VGPU_START_ERROR", "a vGPU could not start", "UPDATE_SWFW"),
    (79, "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS", "fallen off the bus", "RESTART_BM"),
    (80, "PBDMA_PUSHBUFFER_CRC_MISMATCH", "corrupted data sent to the GPU", "RESTART_APP"),
    (82, "ROBUST_CHANNEL_NVJPG0_ERROR", "error of JPEG engine 0", "RESTART_APP"),
    (83, "ROBUST_CHANNEL_NVDEC1_ERROR", "error of video decoder 1", "RESTART_APP"),
    (84, "ROBUST_CHANNEL_NVDEC2_ERROR", "error of video decoder 2", "RESTART_APP"),
    (85, "ROBUST_CHANNEL_CE9_ERROR", "error of copy engine 9", "RESTART_APP"),
    (86, "ROBUST_CHANNEL_OFA0_ERROR", "exception of optical flow engine 0", "RESTART_APP"),
    (88, "ROBUST_CHANNEL_NVDEC3_ERROR", "error of video decoder 3", "RESTART_APP"),
    (89, "ROBUST_CHANNEL_NVDEC4_ERROR", "error of video decoder 4", "RESTART_APP"),
    (92, "EXCESSIVE_SBE_INTERRUPTS", "many corrected errors of memory", "IGNORE"),
    (93, "INFOROM_ERASE_LIMIT_EXCEEDED", "the InfoROM's limit of wear is reached", "IGNORE"),
    (94, "ROBUST_CHANNEL_CONTAINED_ERROR", "error of memory in one application", "RESTART_APP"),
    (95, "ROBUST_CHANNEL_UNCONTAINED_ERROR", "error of memory for all applications", "RESET_GPU"),
    (96, "ROBUST_CHANNEL_NVDEC5_ERROR", "error of video decoder 5", "RESTART_APP"),
    (97, "ROBUST_CHANNEL_NVDEC6_ERROR", "error of video decoder 6", "RESTART_APP"),
    (98, "ROBUST_CHANNEL_NVDEC7_ERROR", "error of video decoder 7", "RESTART_APP"),
    (99, "ROBUST_CHANNEL_NVJPG1_ERROR", "error of JPEG engine 1", "RESTART_APP"),
    (100, "ROBUST_CHANNEL_NVJPG2_ERROR", "error of JPEG engine 2", "RESTART_APP"),
    (101, "ROBUST_CHANNEL_NVJPG3_ERROR", "error of JPEG engine 3", "RESTART_APP"),
    (102, "ROBUST_CHANNEL_NVJPG4_ERROR", "error of JPEG engine 4", "RESTART_APP"),
    (103, "ROBUST_CHANNEL_NVJPG5_ERROR", "error of JPEG engine 5", "RESTART_APP"),
    (104, "ROBUST_CHANNEL_NVJPG6_ERROR", "error of JPEG engine 6", "RESTART_APP"),
    (105, "ROBUST_CHANNEL_NVJPG7_ERROR", "error of JPEG engine 7", "RESTART_APP"),
    (106, "SMBPBI_TEST_MESSAGE", "test message", "IGNORE"),
    (107, "SMBPBI_TEST_MESSAGE_SILENT", "silent test message", "IGNORE"),
    (108, "NVLINK_REMOTE_TRANSLATION_ERROR", "no longer used", "IGNORE"),
    (109, "ROBUST_CHANNEL_CTXSW_TIMEOUT_ERROR", "switching contexts took too long", "RESET_GPU"),
    (110, "SEC_FAULT_ERROR", "security fault", "RESET_GPU"),
    (119, "GSP_RPC_TIMEOUT", "no answer from the system processor", "RESET_GPU"),
    (120, "GSP_ERROR", "error of the system processor", "RESET_GPU"),
    (121, "C2C_ERROR", "corrected errors of the link to the processor", "IGNORE"),
    (126, "ROBUST_CHANNEL_CE10_ERROR", "error of copy engine 10", "RESTART_APP"),
    (127, "ROBUST_CHANNEL_CE11_ERROR", "error of copy engine 11", "RESTART_APP"),
    (128, "ROBUST_CHANNEL_CE12_ERROR", "error of copy engine 12", "RESTART_APP"),
    (129, "ROBUST_CHANNEL_CE13_ERROR", "error of copy engine 13", "RESTART_APP"),
    (130, "ROBUST_CHANNEL_CE14_ERROR", "error of copy engine 14", "RESTART_APP"),
    (131, "ROBUST_CHANNEL_CE15_ERROR", "error of copy engine 15", "RESTART_APP"),
    (132, "ROBUST_CHANNEL_CE16_ERROR", "error of copy engine 16", "RESTART_APP"),
    (133, "ROBUST_CHANNEL_CE17_ERROR", "error of copy engine 17", "RESTART_APP"),
    (134, "ROBUST_CHANNEL_CE18_ERROR", "error of copy engine 18", "RESTART_APP"),
    (135, "ROBUST_CHANNEL_CE19_ERROR", "error of copy engine 19", "RESTART_APP"),
    (136, "ALI_TRAINING_FAIL", "training of an NVLink failed", "RESET_GPU"),
    (137, "NVLINK_PRIV_ERR", "illegal access over an NVLink", "IGNORE"),
    (139, "ROBUST_CHANNEL_OFA1_ERROR", "error of optical flow engine 1", "RESTART_APP"),
    (140, "UNRECOVERABLE_ECC_ERROR_ESCAPE", "uncorrectable error of memory", "RESET_GPU"),
    (141, "ROBUST_CHANNEL_FAST_PATH_ERROR", "error of CUDA's fast path", "IGNORE"),
    (142, "ROBUST_CHANNEL_NVENC3_ERROR", "error of video encoder 3", "CONTACT_SUPPORT"),
    (143, "GPU_INIT_ERROR", "the GPU could not be initialized", "RESET_GPU"),
    (144, "NVLINK_SAW_ERROR", "NVLink 5: unit SAW", "WORKFLOW_NVLINK5_ERR"),
    (145, "NVLINK_RLW_ERROR", "NVLink 5: unit RLW", "WORKFLOW_NVLINK5_ERR"),
    (146, "NVLINK_TLW_ERROR", "NVLink 5: unit TLW", "WORKFLOW_NVLINK5_ERR"),
    (147, "NVLINK_TREX_ERROR", "NVLink 5: unit TREX", "WORKFLOW_NVLINK5_ERR"),
    (148, "NVLINK_NVLPW_CTRL_ERROR", "NVLink 5: unit NVLPW", "WORKFLOW_NVLINK5_ERR"),
    (
        149,
        "NVLINK_NETIR_ERROR",
        "NVLink 5: unit NETIR, or a link went down",
        "WORKFLOW_NVLINK5_ERR",
    ),
    (150, "NVLINK_MSE_ERROR", "NVLink 5: unit MSE", "WORKFLOW_NVLINK5_ERR"),
    (151, "ROBUST_CHANNEL_KEY_ROTATION_ERROR", "rotation of keys failed", "RESTART_VM"),
    (152, "ROBUST_CHANNEL_DLA_SMMU_ERROR", "memory fault of the accelerator", "IGNORE"),
    (153, "ROBUST_CHANNEL_DLA_TIMEOUT", "the accelerator made no progress", "IGNORE"),
    (154, "GPU_RECOVERY_ACTION_CHANGED", "the driver names what is to be done", "XID_154"),
    (155, "NVLINK_SW_DEFINED_ERROR", "an NVLink was taken down", "RESET_GPU"),
    (156, "RESOURCE_RETIREMENT_EVENT", "a defective part is retired", "RESET_GPU"),
    (157, "RESOURCE_RETIREMENT_FAILURE", "a defective part cannot be retired", "IGNORE"),
    (158, "GPU_FATAL_TIMEOUT", "the GPU made no progress", "RESET_GPU"),
    (159, "ROBUST_CHANNEL_CHI_NON_DATA_ERROR", "error of the link to the processor", "CHECK_UVM"),
    (160, "CHANNEL_RETIREMENT_EVENT", "a channel of memory is retired", "IGNORE"),
    (161, "CHANNEL_RETIREMENT_FAILURE", "a channel of memory cannot be retired", "IGNORE"),
    (162, "PSHC_REENGAGED", "power smoothing works again", ""),
    (163, "PSHC_DISENGAGED", "power smoothing stopped", ""),
    (164, "PSHC_LOW_LIFETIME", "power smoothing is nearly worn out", ""),
    (165, "PSHC_ZERO_LIFETIME", "power smoothing is worn out", ""),
    (166, "NVLINK_SECURE_CRYPTO_ERR", "unencrypted traffic of a confidential GPU", ""),
    (167, "PCIE_FATAL_TIMEOUT", "no answer over PCIe", ""),
    (168, "REDUCED_GPU_MEMORY_CAPACITY", "errors in protected memory", ""),
    (169, "SEC2_HALT_ERROR", "the security processor halted", ""),
    (170, "NVLINK_SECURE_OTHER", "interrupt of a confidential GPU", ""),
    (171, "UNCORRECTABLE_DRAM_ERROR", "details of Xid 48: in DRAM", ""),
    (172, "UNCORRECTABLE_SRAM_ERROR", "details of Xid 48: in SRAM", ""),
)

CATALOGUE: Mapping[int, Xid] = {row[0]: Xid(*row) for row in _TABLE}
"""All Xids that are in use, by their numbers."""

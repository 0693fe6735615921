#pragma once
// CUDA_VISIBLE_DEVICES, as CUDA understands it.
//
// Numbers are taken in the driver's order, that of the PCI bus. CUDA numbers that way only with CUDA_DEVICE_ORDER=PCI_BUS_ID; its
// own default puts the fastest GPU first, which cannot be found out through NVML. On machines whose GPUs are all alike the two
// orders agree; on others, name GPUs by UUID or set that variable.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::sense {

struct VisibleDevices {
    std::vector<int> devices;  ///< the driver's numbers, in CUDA's order
    std::string note;          ///< what ended the list early or hid everything; empty when nothing did
};

/// `uuids` of the machine's GPUs in the driver's order. Entries are numbers, UUIDs or unique beginnings of one ("GPU-7089"), or
/// MIG instances, for which `parent_of_mig` gives the GPU they are part of. The first entry that names no GPU ends the list; an
/// entry given twice hides everything. A list without entries hides everything.
VisibleDevices visible_devices(std::string_view list, const std::vector<std::string>& uuids,
                               const std::function<std::optional<int>(const std::string& mig_uuid)>& parent_of_mig);

}  // namespace millrace::sense

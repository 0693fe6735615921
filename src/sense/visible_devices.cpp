#include "sense/visible_devices.h"

#include <algorithm>

#include "sense/proc_file.h"

namespace millrace::sense {

namespace {

std::string_view trimmed(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::optional<int> by_beginning(std::string_view uuid, const std::vector<std::string>& uuids) {
    std::optional<int> found;
    for (std::size_t i = 0; i < uuids.size(); ++i) {
        if (!uuids[i].starts_with(uuid)) continue;
        if (found) return std::nullopt;  // not unique
        found = static_cast<int>(i);
    }
    return found;
}

}  // namespace

VisibleDevices visible_devices(std::string_view list, const std::vector<std::string>& uuids,
                               const std::function<std::optional<int>(const std::string&)>& parent_of_mig) {
    VisibleDevices visible;
    std::vector<std::string> entries;
    bool more = true;
    while (more) {
        const std::size_t comma = list.find(',');
        const std::string entry(trimmed(list.substr(0, comma)));
        more = comma != std::string_view::npos;
        list.remove_prefix(more ? comma + 1 : list.size());
        std::optional<int> device;
        const bool is_mig = entry.starts_with("MIG-");
        if (const auto number = to_count(entry); number && *number < uuids.size())
            device = static_cast<int>(*number);
        else if (entry.starts_with("GPU-"))
            device = by_beginning(entry, uuids);
        else if (is_mig && entry.starts_with("MIG-GPU-"))  // "MIG-<UUID of the GPU>/<instance>/<instance>", before driver 470
            device = by_beginning(entry.substr(4, entry.find('/') - 4), uuids);
        else if (is_mig)
            device = parent_of_mig(entry);
        if (!device) {
            visible.note = entry.empty() ? "CUDA_VISIBLE_DEVICES has an empty entry"
                                         : "CUDA_VISIBLE_DEVICES names no GPU with '" + entry + "'";
            if (!visible.devices.empty()) visible.note += "; what follows it is hidden";
            return visible;
        }
        // Several instances of one GPU are several CUDA devices, but one GPU to watch.
        const bool again = std::find(visible.devices.begin(), visible.devices.end(), *device) != visible.devices.end();
        if ((again && !is_mig) || std::find(entries.begin(), entries.end(), entry) != entries.end())
            return {.devices = {}, .note = "CUDA_VISIBLE_DEVICES names '" + entry + "' twice, which hides every GPU"};
        if (!again) visible.devices.push_back(*device);
        entries.push_back(entry);
    }
    return visible;
}

}  // namespace millrace::sense

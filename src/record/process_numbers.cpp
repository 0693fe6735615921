#include "record/process_numbers.h"

#include <sys/stat.h>

#include <fstream>
#include <vector>

#include "sense/proc_file.h"

namespace millrace::record {
namespace {

constexpr std::size_t kMostMappings = 1u << 17;
constexpr std::uint64_t kMostNumber = 1u << 30;

std::optional<std::uint32_t> own_number_in(const std::string& folder) {
    std::string buffer;
    const auto status = sense::ProcFile(folder + "/status", false).read(buffer);
    return status ? own_number(*status) : std::nullopt;
}

/// By its inode and name: the rest of the path may look different from inside of a container.
bool has_mapped(const std::string& folder, std::uint64_t inode, const std::string& name) {
    std::ifstream maps(folder + "/maps");
    std::string text;
    for (std::size_t number = 0; number < kMostMappings && std::getline(maps, text); ++number) {
        std::string_view line = text;
        for (int field = 0; field < 4; ++field) sense::next_word(line);  // range, access, offset, device
        if (sense::to_count(sense::next_word(line)) == inode && line.ends_with("/" + name)) return true;
    }
    return false;
}

}  // namespace

std::optional<std::uint32_t> own_number(std::string_view status) {
    std::string_view line;
    while (sense::next_line(status, line)) {
        if (!line.starts_with("NSpid:")) continue;
        std::optional<std::uint64_t> innermost;
        sense::next_word(line);
        for (std::string_view word = sense::next_word(line); !word.empty(); word = sense::next_word(line))
            innermost = sense::to_count(word);
        if (!innermost || *innermost == 0 || *innermost >= kMostNumber) return std::nullopt;
        return static_cast<std::uint32_t>(*innermost);
    }
    return std::nullopt;
}

std::uint32_t own_number_of(std::uint32_t pid, const std::string& proc) {
    return own_number_in(proc + "/" + std::to_string(pid)).value_or(pid);
}

std::map<std::uint32_t, std::uint32_t> threads_by_own_number(std::uint32_t pid, const std::string& proc) {
    std::map<std::uint32_t, std::uint32_t> threads;
    const std::string tasks = proc + "/" + std::to_string(pid) + "/task";
    for (const pid_t number : sense::numbers_in(tasks))
        if (const auto own = own_number_in(tasks + "/" + std::to_string(number)))
            threads[*own] = static_cast<std::uint32_t>(number);
    return threads;
}

std::uint32_t find_owner(const io::Path& file, std::uint32_t own, const std::string& proc) {
    struct stat about {};
    if (::stat(file.c_str(), &about) != 0) return own;
    const std::string name = file.filename().string();
    const auto maps = [&](std::uint32_t pid) { return has_mapped(proc + "/" + std::to_string(pid), about.st_ino, name); };
    if (maps(own)) return own;
    std::vector<std::uint32_t> candidates;
    for (const pid_t number : sense::numbers_in(proc)) {
        if (own_number_in(proc + "/" + std::to_string(number)) != own) continue;
        const auto pid = static_cast<std::uint32_t>(number);
        if (maps(pid)) return pid;
        candidates.push_back(pid);
    }
    // What it has mapped may be hidden from us.
    return candidates.size() == 1 ? candidates.front() : own;
}

}  // namespace millrace::record

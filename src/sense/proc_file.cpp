#include "sense/proc_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <utility>

namespace millrace::sense {
namespace {

constexpr std::size_t kFirstBuffer = 4096;
constexpr std::size_t kLargest = std::size_t{1} << 20;

std::optional<std::size_t> read_at_start(int descriptor, std::string& buffer) {
    if (buffer.size() < kFirstBuffer) buffer.resize(kFirstBuffer);
    std::size_t filled = 0;
    while (filled < kLargest) {
        if (filled == buffer.size()) buffer.resize(buffer.size() * 2);
        const ssize_t got = ::pread(descriptor, buffer.data() + filled, buffer.size() - filled, static_cast<off_t>(filled));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return std::nullopt;
        if (got == 0) break;
        filled += static_cast<std::size_t>(got);
    }
    return filled;
}

}  // namespace

ProcFile::ProcFile(ProcFile&& other) noexcept
    : path_(std::move(other.path_)), keep_(other.keep_), descriptor_(std::exchange(other.descriptor_, -1)) {}

ProcFile& ProcFile::operator=(ProcFile other) noexcept {
    path_.swap(other.path_);
    std::swap(keep_, other.keep_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

void ProcFile::close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

std::optional<std::string_view> ProcFile::read(std::string& buffer) {
    if (path_.empty()) return std::nullopt;
    if (descriptor_ < 0) descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) return std::nullopt;
    const std::optional<std::size_t> size = read_at_start(descriptor_, buffer);
    if (!keep_ || !size) close();
    if (!size) return std::nullopt;
    return std::string_view(buffer).substr(0, *size);
}

bool next_line(std::string_view& text, std::string_view& line) {
    if (text.empty()) return false;
    const std::size_t end = text.find('\n');
    line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return true;
}

std::string_view next_word(std::string_view& line) {
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos) {
        line = {};
        return {};
    }
    line.remove_prefix(begin);
    const std::string_view word = line.substr(0, line.find_first_of(" \t\n"));
    line.remove_prefix(word.size());
    return word;
}

std::optional<std::uint64_t> to_count(std::string_view word) {
    std::uint64_t value = 0;
    const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (failed != std::errc{} || end != word.data() + word.size()) return std::nullopt;
    return value;
}

std::optional<double> to_number(std::string_view word) {
    double value = 0;
    const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (failed != std::errc{} || end != word.data() + word.size() || !std::isfinite(value)) return std::nullopt;
    return value;
}

std::vector<pid_t> numbers_in(const std::string& folder) {
    std::vector<pid_t> numbers;
    std::error_code failed;
    for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
        if (const auto number = to_count(at->path().filename().native()); number && *number > 0 && *number < 1u << 30)
            numbers.push_back(static_cast<pid_t>(*number));
    return numbers;
}

std::optional<std::uint64_t> find_count(std::string_view text, std::string_view key) {
    std::string_view line;
    while (next_line(text, line)) {
        std::string_view word = next_word(line);
        if (word.ends_with(':')) word.remove_suffix(1);
        if (word == key) return to_count(next_word(line));
    }
    return std::nullopt;
}

}  // namespace millrace::sense

#pragma once
// Lines of a stream that may be huge, foreign or torn, in bounded memory.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "io/file.h"

namespace millrace::io {

constexpr std::size_t kLineCap = std::size_t{1} << 20;  ///< bytes of a line; ours stay far below

/// Cuts bytes that come in pieces into lines. How they are cut into pieces makes no difference.
class LineSplitter {
public:
    /// Gets each whole line without its newline. The text lasts for the call.
    using Receiver = std::function<void(std::string_view line)>;

    LineSplitter(std::size_t cap, Receiver receiver) : cap_(cap), receiver_(std::move(receiver)) {}

    void feed(std::string_view bytes);
    /// A last line without its newline may be half of what was meant, even when it happens to parse.
    [[nodiscard]] bool torn() const { return too_long_now_ || !pending_.empty(); }
    [[nodiscard]] std::uint64_t too_long() const { return too_long_; }  ///< whole lines above the cap, passed over

private:
    std::size_t cap_;
    Receiver receiver_;
    std::string pending_;
    bool too_long_now_ = false;
    std::uint64_t too_long_ = 0;
};

struct LineCounts {
    std::uint64_t too_long = 0;
    bool torn = false;
};

/// Reads `path`, a regular file, piece by piece from its beginning to where it ends now.
Result<LineCounts> read_lines(const Path& path, const LineSplitter::Receiver& receiver, std::size_t cap = kLineCap);

}  // namespace millrace::io

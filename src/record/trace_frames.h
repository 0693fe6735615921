#pragma once
// The frames of trace.bin: a head of 16 bytes, then `stored` bytes. What they hold is the business of trace_writer.cpp and
// trace_reader.cpp.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace millrace::record {

constexpr std::string_view kTraceMagic = "millrace trace 1";  ///< the file begins with it
constexpr std::uint32_t kTraceFrameCap = 16u << 20;           ///< of a frame's content

enum class FrameKind : std::uint8_t {
    kRecords = 1,
    kSamples = 2,
    kBlocks = 3,
    kProcess = 4,
    kClock = 5,
    kNote = 6,
    kStack = 7,
    kName = 8,
    kLoops = 9,
};

enum class FramePacking : std::uint8_t { kPlain = 0, kZstd = 1 };

/// A frame as it stands in the file. `content` is at most kTraceFrameCap bytes.
std::vector<std::byte> pack_frame(FrameKind kind, io::Bytes content);

struct FrameScan {
    std::uint64_t end = 0;         ///< behind the last whole frame
    std::uint64_t torn_bytes = 0;  ///< behind that
    std::uint64_t bad_frames = 0;  ///< checksum or packing is wrong
};

/// Calls `use` for each frame of the file up to `end` (0: all there is). Fails when the file cannot be read or is no trace.
base::Result<FrameScan> scan_frames(const io::Path& path, std::uint64_t end,
                                    const std::function<void(std::uint8_t, io::Bytes)>& use);

/// Rows of one size differ little from those before them: as differences, byte by byte of all rows, they compress twice as well.
/// `rows` is a multiple of `width`, which is a multiple of 4; appends as many bytes.
void spread_rows(io::Bytes rows, std::size_t width, std::string& to);
/// The inverse.
std::vector<std::byte> gather_rows(io::Bytes from, std::size_t width);

}  // namespace millrace::record

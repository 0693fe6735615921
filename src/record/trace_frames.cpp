#include "record/trace_frames.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

#include "io/checksum.h"
#include "io/packing.h"

namespace millrace::record {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little endian, as is every machine with such a GPU");

struct Head {
    std::uint32_t stored = 0;    ///< bytes behind the head
    std::uint32_t checksum = 0;  ///< CRC-32C of the head behind this field and of the stored bytes
    std::uint32_t unpacked = 0;
    std::uint8_t kind = 0, packing = 0;
    std::uint16_t reserved = 0;
};
static_assert(sizeof(Head) == 16);
constexpr std::size_t kSummedFrom = 8;

constexpr int kLevel = 3;
constexpr std::size_t kWorthPacking = 128;
using Word = std::uint32_t;

class VectorSink final : public io::ByteSink {
public:
    explicit VectorSink(std::vector<std::byte>& out) : out_(out) {}
    base::Status write(io::Bytes bytes) override {
        out_.insert(out_.end(), bytes.begin(), bytes.end());
        return base::ok();
    }

private:
    std::vector<std::byte>& out_;
};

/// Appends the packed content; false when that is no smaller.
bool pack(io::Bytes content, std::vector<std::byte>& to) {
    if (!io::have_zstd() || content.size() < kWorthPacking) return false;
    const std::size_t before = to.size();
    VectorSink out(to);
    const auto packer = io::pack_zstd(out, kLevel);
    if (packer->write(content).ok() && packer->finish().ok() && to.size() - before < content.size()) return true;
    to.resize(before);
    return false;
}

std::uint32_t sum_of(const std::vector<std::byte>& frame) {
    return io::crc32c({reinterpret_cast<const char*>(frame.data()) + kSummedFrom, frame.size() - kSummedFrom});
}

/// Whether a head can be ours; what it says is otherwise not even a length to go on by.
bool plausible(const Head& head) {
    return head.unpacked <= kTraceFrameCap && head.stored <= head.unpacked &&
           (head.packing == static_cast<std::uint8_t>(FramePacking::kZstd) || head.stored == head.unpacked);
}

}  // namespace

std::vector<std::byte> pack_frame(FrameKind kind, io::Bytes content) {
    MILLRACE_ASSERT(content.size() <= kTraceFrameCap, "a frame is too large");
    std::vector<std::byte> frame(sizeof(Head));
    Head head;
    head.kind = static_cast<std::uint8_t>(kind);
    head.unpacked = static_cast<std::uint32_t>(content.size());
    if (pack(content, frame))
        head.packing = static_cast<std::uint8_t>(FramePacking::kZstd);
    else
        frame.insert(frame.end(), content.begin(), content.end());
    head.stored = static_cast<std::uint32_t>(frame.size() - sizeof head);
    std::memcpy(frame.data(), &head, sizeof head);
    head.checksum = sum_of(frame);
    std::memcpy(frame.data(), &head, sizeof head);
    return frame;
}

base::Result<FrameScan> scan_frames(const io::Path& path, std::uint64_t end,
                                    const std::function<void(std::uint8_t, io::Bytes)>& use) {
    MILLRACE_LET(opened, io::open_regular(path));
    const auto& [file, size] = opened;
    if (end == 0 || end > size) end = size;
    std::array<std::byte, kTraceMagic.size()> magic{};
    const bool long_enough = size >= magic.size();
    if (long_enough) MILLRACE_TRY(io::read_exactly(file, magic, 0, path));
    if (!long_enough || std::memcmp(magic.data(), kTraceMagic.data(), magic.size()) != 0)
        return base::Error{fmt::format("is no trace of a recording: it does not begin with '{}'", kTraceMagic), path.string()};

    FrameScan scan;
    scan.end = magic.size();
    std::vector<std::byte> frame;
    while (end - scan.end >= sizeof(Head)) {
        Head head;
        frame.resize(sizeof head);
        MILLRACE_TRY(io::read_exactly(file, frame, scan.end, path));
        std::memcpy(&head, frame.data(), sizeof head);
        if (!plausible(head) || end - scan.end - sizeof head < head.stored) break;
        frame.resize(sizeof head + head.stored);
        MILLRACE_TRY(io::read_exactly(file, std::span(frame).subspan(sizeof head), scan.end + sizeof head, path));
        scan.end += frame.size();
        const io::Bytes stored = io::Bytes(frame).subspan(sizeof head);
        if (sum_of(frame) != head.checksum) {
            ++scan.bad_frames;
        } else if (head.packing == static_cast<std::uint8_t>(FramePacking::kPlain)) {
            use(head.kind, stored);
        } else if (auto content = io::decompress_zstd(stored, head.unpacked, path); content.ok()) {
            use(head.kind, *content);
        } else {
            if (!io::have_zstd()) return content.error();
            ++scan.bad_frames;
        }
    }
    scan.torn_bytes = end - scan.end;
    return scan;
}

void spread_rows(io::Bytes rows, std::size_t width, std::string& to) {
    MILLRACE_ASSERT(width % sizeof(Word) == 0 && rows.size() % width == 0, "rows are whole");
    const std::size_t at = to.size(), count = rows.size() / width;
    to.resize(at + rows.size());
    std::vector<Word> before(width / sizeof(Word));
    for (std::size_t row = 0; row < count; ++row)
        for (std::size_t column = 0; column < before.size(); ++column) {
            Word word = 0;
            std::memcpy(&word, rows.data() + row * width + column * sizeof word, sizeof word);
            const Word difference = word - before[column];
            before[column] = word;
            for (std::size_t byte = 0; byte < sizeof word; ++byte)
                to[at + (sizeof word * column + byte) * count + row] = static_cast<char>(difference >> (8 * byte));
        }
}

std::vector<std::byte> gather_rows(io::Bytes from, std::size_t width) {
    const std::size_t count = from.size() / width;
    std::vector<std::byte> rows(count * width);
    std::vector<Word> before(width / sizeof(Word));
    for (std::size_t row = 0; row < count; ++row)
        for (std::size_t column = 0; column < before.size(); ++column) {
            Word difference = 0;
            for (std::size_t byte = 0; byte < sizeof difference; ++byte)
                difference |= std::to_integer<Word>(from[(sizeof(Word) * column + byte) * count + row]) << (8 * byte);
            before[column] += difference;
            std::memcpy(rows.data() + row * width + column * sizeof(Word), &before[column], sizeof(Word));
        }
    return rows;
}

}  // namespace millrace::record

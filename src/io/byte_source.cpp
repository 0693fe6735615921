#include "io/packing.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace millrace::io {

namespace {

class FileSource : public ByteSource {
public:
    FileSource(FileDescriptor file, Path place, std::uint64_t size)
        : file_(std::move(file)), place_(std::move(place)), size_(size) {}

    Result<std::size_t> read(std::span<char> into) override {
        for (;;) {
            const ssize_t got = ::read(file_.get(), into.data(), into.size());
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) return system_error("cannot read", place_, errno);
            taken_ += static_cast<std::uint64_t>(got);
            return static_cast<std::size_t>(got);
        }
    }
    [[nodiscard]] double progress() const override {
        return size_ == 0 ? 1 : std::min(1.0, static_cast<double>(taken_) / static_cast<double>(size_));
    }

private:
    FileDescriptor file_;
    Path place_;
    std::uint64_t size_, taken_ = 0;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> open_source(const Path& path) {
    MILLRACE_LET(opened, open_regular(path));
    auto& [file, size] = opened;
    std::array<unsigned char, 2> magic{};
    const bool packed = ::pread(file.get(), magic.data(), magic.size(), 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
    std::unique_ptr<ByteSource> source = std::make_unique<FileSource>(std::move(file), path, size);
    if (!packed) return source;
    return unpack_gzip(std::move(source), path);
}

Result<std::vector<std::byte>> read_unpacked(const Path& path, std::size_t cap) {
    MILLRACE_LET(source, open_source(path));
    constexpr std::size_t kFirstPiece = std::size_t{256} << 10;
    std::vector<std::byte> bytes;
    for (std::size_t size = 0;;) {
        if (size == bytes.size()) bytes.resize(std::min(cap + 1, std::max(bytes.size() * 2, kFirstPiece)));
        const std::span<char> free(reinterpret_cast<char*>(bytes.data()) + size, bytes.size() - size);
        MILLRACE_LET(got, source->read(free));
        size += got;
        if (size > cap)
            return Error{"has more than " + std::to_string(cap) + " bytes, unpacked; at most that is accepted here",
                         path.string()};
        if (got > 0) continue;
        if (!source->damage().empty()) return Error{std::string(source->damage()), path.string()};
        bytes.resize(size);
        return bytes;
    }
}

}  // namespace millrace::io

#include "io/packing.h"

#include <fmt/format.h>
#include <unistd.h>
#if defined(MILLRACE_HAVE_ZLIB)
#include <zlib.h>
#endif
#if defined(MILLRACE_HAVE_ZSTD)
#include <zstd.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>

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

#if defined(MILLRACE_HAVE_ZLIB)

namespace {

constexpr std::size_t kGzipPiece = std::size_t{256} << 10;
constexpr int kGzipWindow = 15 + 16;  ///< the greatest, in gzip's wrapping

class GzipSource : public ByteSource {
public:
    explicit GzipSource(std::unique_ptr<ByteSource> packed) : packed_(std::move(packed)), buffer_(kGzipPiece) {
        MILLRACE_ASSERT(::inflateInit2(&stream_, kGzipWindow) == Z_OK, "no memory to unpack");
    }
    ~GzipSource() override { ::inflateEnd(&stream_); }

    Result<std::size_t> read(std::span<char> into) override {
        if (ended_ || into.empty()) return std::size_t{0};
        const auto room = static_cast<uInt>(std::min<std::size_t>(into.size(), std::numeric_limits<uInt>::max()));
        stream_.next_out = reinterpret_cast<Bytef*>(into.data());
        stream_.avail_out = room;
        while (stream_.avail_out == room && !ended_) {
            if (stream_.avail_in == 0) {
                MILLRACE_LET(got, packed_->read(buffer_));
                stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
                stream_.avail_in = static_cast<uInt>(got);
                if (got == 0) {
                    end(between_ ? "" : "the packed file ends in the middle: it was cut");
                    break;
                }
            }
            step();
        }
        return static_cast<std::size_t>(room - stream_.avail_out);
    }
    [[nodiscard]] double progress() const override { return packed_->progress(); }
    [[nodiscard]] std::string_view damage() const override { return damage_; }

private:
    void step() {
        // Whatever follows a whole gzip file and is none itself is padding, as gzip treats it.
        if (between_ && *stream_.next_in != 0x1f && finished_one_) return end("");
        between_ = false;
        const int state = ::inflate(&stream_, Z_NO_FLUSH);
        if (state == Z_STREAM_END) {
            between_ = finished_one_ = true;
            ::inflateReset(&stream_);
        } else if (state != Z_OK && state != Z_BUF_ERROR) {
            end(fmt::format("the packed file is damaged ({})", stream_.msg != nullptr ? stream_.msg : "zlib gives no reason"));
        }
    }
    void end(std::string damage) {
        ended_ = true;
        damage_ = std::move(damage);
    }

    std::unique_ptr<ByteSource> packed_;
    std::vector<char> buffer_;
    z_stream stream_{};
    bool ended_ = false, between_ = false, finished_one_ = false;
    std::string damage_;
};

class GzipSink final : public PackingSink {
public:
    GzipSink(ByteSink& out, int level) : out_(out), buffer_(kGzipPiece) {
        constexpr int kMemoryLevel = 8;
        const int state = ::deflateInit2(&stream_, level, Z_DEFLATED, kGzipWindow, kMemoryLevel, Z_DEFAULT_STRATEGY);
        MILLRACE_ASSERT(state == Z_OK, "no memory for a compressor");
    }
    ~GzipSink() override { ::deflateEnd(&stream_); }
    Status write(Bytes bytes) override { return push(bytes, Z_NO_FLUSH); }
    Status finish() override { return push({}, Z_FINISH); }

private:
    Status push(Bytes bytes, int flush) {
        while (!bytes.empty() || flush == Z_FINISH) {
            const std::size_t count = std::min<std::size_t>(bytes.size(), std::numeric_limits<uInt>::max());
            stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
            stream_.avail_in = static_cast<uInt>(count);
            stream_.next_out = reinterpret_cast<Bytef*>(buffer_.data());
            stream_.avail_out = static_cast<uInt>(buffer_.size());
            const int state = ::deflate(&stream_, flush);
            if (state == Z_STREAM_ERROR) return Error{"cannot compress: the compressor is in a broken state"};
            bytes = bytes.subspan(count - stream_.avail_in);
            MILLRACE_TRY(out_.write({buffer_.data(), buffer_.size() - stream_.avail_out}));
            if (state == Z_STREAM_END) break;
        }
        return base::ok();
    }

    ByteSink& out_;
    z_stream stream_{};
    std::vector<std::byte> buffer_;
};

}  // namespace

bool have_gzip() { return true; }

std::unique_ptr<PackingSink> pack_gzip(ByteSink& out, int level) { return std::make_unique<GzipSink>(out, level); }

Result<std::unique_ptr<ByteSource>> unpack_gzip(std::unique_ptr<ByteSource> packed, const Path& /*place*/) {
    return std::unique_ptr<ByteSource>(std::make_unique<GzipSource>(std::move(packed)));
}

Result<std::vector<std::byte>> inflate_raw(Bytes packed, std::uint64_t size, const Path& place) {
    constexpr std::uint64_t kMostRatio = 1032;  // deflate packs no better
    const Error wrong{"is damaged where it is packed", place.string()};
    constexpr auto kMostAtOnce = std::numeric_limits<uInt>::max();
    if (size > packed.size() * kMostRatio) return wrong;
    std::vector<std::byte> bytes(size);
    z_stream stream{};
    MILLRACE_ASSERT(::inflateInit2(&stream, -15) == Z_OK, "no memory to unpack");
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
    std::byte none{};
    stream.next_out = reinterpret_cast<Bytef*>(size > 0 ? bytes.data() : &none);
    std::uint64_t in = packed.size(), out = size;
    int state = Z_OK;
    while (state == Z_OK) {
        stream.avail_in = static_cast<uInt>(std::min<std::uint64_t>(in, kMostAtOnce));
        stream.avail_out = static_cast<uInt>(std::min<std::uint64_t>(out, kMostAtOnce));
        const uInt taken = stream.avail_in, room = stream.avail_out;
        state = ::inflate(&stream, Z_NO_FLUSH);
        in -= taken - stream.avail_in;
        out -= room - stream.avail_out;
    }
    ::inflateEnd(&stream);
    if (state != Z_STREAM_END || in != 0 || out != 0) return wrong;
    return bytes;
}

#else

bool have_gzip() { return false; }

std::unique_ptr<PackingSink> pack_gzip(ByteSink& /*out*/, int /*level*/) { return nullptr; }

Result<std::unique_ptr<ByteSource>> unpack_gzip(std::unique_ptr<ByteSource> /*packed*/, const Path& place) {
    return Error{"is packed with gzip, and this program was built without zlib: unpack it first (gunzip)", place.string()};
}

Result<std::vector<std::byte>> inflate_raw(Bytes, std::uint64_t, const Path& place) {
    return Error{"is packed, and this program was built without zlib", place.string()};
}

#endif
#if defined(MILLRACE_HAVE_ZSTD)

namespace {

class ZstdSink final : public PackingSink {
public:
    ZstdSink(ByteSink& out, int level) : out_(out), context_(ZSTD_createCCtx()), buffer_(ZSTD_CStreamOutSize()) {
        MILLRACE_ASSERT(context_ != nullptr, "no memory for a compressor");
        ZSTD_CCtx_setParameter(context_, ZSTD_c_compressionLevel, level);
        ZSTD_CCtx_setParameter(context_, ZSTD_c_checksumFlag, 1);
    }
    ~ZstdSink() override { ZSTD_freeCCtx(context_); }
    Status write(Bytes bytes) override { return push(bytes, ZSTD_e_continue); }
    Status finish() override { return push({}, ZSTD_e_end); }

private:
    Status push(Bytes bytes, ZSTD_EndDirective directive) {
        ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
        std::size_t left = 0;
        do {
            ZSTD_outBuffer to{buffer_.data(), buffer_.size(), 0};
            left = ZSTD_compressStream2(context_, &to, &in, directive);
            if (ZSTD_isError(left) != 0) return Error{fmt::format("cannot compress: {}", ZSTD_getErrorName(left))};
            MILLRACE_TRY(out_.write({buffer_.data(), to.pos}));
        } while (in.pos < in.size || (directive == ZSTD_e_end && left > 0));
        return base::ok();
    }

    ByteSink& out_;
    ZSTD_CCtx* context_;
    std::vector<std::byte> buffer_;
};

}  // namespace

bool have_zstd() { return true; }

std::unique_ptr<PackingSink> pack_zstd(ByteSink& out, int level) { return std::make_unique<ZstdSink>(out, level); }

Result<std::vector<std::byte>> decompress_zstd(Bytes bytes, std::uint64_t size, const Path& place) {
    std::vector<std::byte> out;
    try {
        out.resize(size);
    } catch (const std::exception&) {
        return Error{fmt::format("not enough memory to unpack {} bytes", size), place.string(), 1};
    }
    const std::size_t got = ZSTD_decompress(out.data(), out.size(), bytes.data(), bytes.size());
    if (ZSTD_isError(got) != 0) return Error{fmt::format("cannot unpack: {}", ZSTD_getErrorName(got)), place.string()};
    if (got != size) return Error{fmt::format("unpacks to {} bytes instead of {}", got, size), place.string()};
    return out;
}

#else

namespace {

class PlainSink final : public PackingSink {
public:
    explicit PlainSink(ByteSink& out) : out_(out) {}
    Status write(Bytes bytes) override { return out_.write(bytes); }
    Status finish() override { return base::ok(); }

private:
    ByteSink& out_;
};

}  // namespace

bool have_zstd() { return false; }

std::unique_ptr<PackingSink> pack_zstd(ByteSink& out, int) { return std::make_unique<PlainSink>(out); }

Result<std::vector<std::byte>> decompress_zstd(Bytes, std::uint64_t, const Path& place) {
    return Error{"is compressed with zstd, which this build does not have; unpack it with `zstd -d`", place.string(), 1};
}

#endif

}  // namespace millrace::io

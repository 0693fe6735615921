#include "io/packing.h"

#include <fmt/format.h>

#if defined(MILLRACE_HAVE_ZLIB)
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace millrace::io {

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

}  // namespace millrace::io

#else

namespace millrace::io {

bool have_gzip() { return false; }

std::unique_ptr<PackingSink> pack_gzip(ByteSink& /*out*/, int /*level*/) { return nullptr; }

Result<std::unique_ptr<ByteSource>> unpack_gzip(std::unique_ptr<ByteSource> /*packed*/, const Path& place) {
    return Error{"is packed with gzip, and this program was built without zlib: unpack it first (gunzip)", place.string()};
}

Result<std::vector<std::byte>> inflate_raw(Bytes, std::uint64_t, const Path& place) {
    return Error{"is packed, and this program was built without zlib", place.string()};
}

}  // namespace millrace::io

#endif

#include "io/picture_file.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <jpeglib.h>  // needs what <cstdio> declares

namespace millrace::io {
namespace {

constexpr int kMostScans = 500;  // of a progressive JPEG: each costs a pass over the whole picture

bool is_png(Bytes bytes) { return bytes.size() >= 8 && std::memcmp(bytes.data(), "\x89PNG\r\n\x1a\n", 8) == 0; }
bool is_jpeg(Bytes bytes) { return bytes.size() >= 3 && std::memcmp(bytes.data(), "\xff\xd8\xff", 3) == 0; }

Status check_size(std::uint64_t width, std::uint64_t height, std::uint64_t most, const Path& place) {
    if (width == 0 || height == 0) return Error{fmt::format("is a picture of {} x {}", width, height), place.string()};
    if (width * height > most)
        return Error{fmt::format("is a picture of {} x {}; at most {} pixels are read", width, height, most), place.string()};
    return base::ok();
}

/// libjpeg reports errors by a call that must not return. Each function with a setjmp has locals without destructors alone.
class JpegReader {
public:
    explicit JpegReader(Bytes bytes) {
        jpeg_.err = jpeg_std_error(&errors_.manager);
        errors_.manager.error_exit = [](j_common_ptr info) {
            auto* errors = reinterpret_cast<Errors*>(info->err);
            info->err->format_message(info, errors->text);
            std::longjmp(errors->back, 1);
        };
        errors_.manager.emit_message = [](j_common_ptr info, int level) {
            auto* errors = reinterpret_cast<Errors*>(info->err);
            if (level >= 0 || errors->damaged) return;
            errors->damaged = true;
            info->err->format_message(info, errors->text);
        };
        progress_.progress_monitor = [](j_common_ptr info) {
            if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
            auto* errors = reinterpret_cast<Errors*>(info->err);
            std::snprintf(errors->text, sizeof errors->text, "more than %d scans", kMostScans);
            std::longjmp(errors->back, 1);
        };
        created_ = create(bytes);
    }
    JpegReader(const JpegReader&) = delete;
    JpegReader& operator=(const JpegReader&) = delete;
    ~JpegReader() { jpeg_destroy_decompress(&jpeg_); }

    bool head() {
        if (!created_ || setjmp(errors_.back) != 0) return false;
        return jpeg_read_header(&jpeg_, TRUE) == JPEG_HEADER_OK;
    }
    bool start(std::uint32_t channels, unsigned scale) {
        if (setjmp(errors_.back) != 0) return false;
        jpeg_.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
        jpeg_.scale_num = scale;
        jpeg_.scale_denom = 8;
        return jpeg_start_decompress(&jpeg_) != FALSE;
    }
    bool rows(std::uint8_t* to, std::size_t stride) {
        if (setjmp(errors_.back) != 0) return false;
        while (jpeg_.output_scanline < jpeg_.output_height) {
            JSAMPROW row = to + jpeg_.output_scanline * stride;
            jpeg_read_scanlines(&jpeg_, &row, 1);
        }
        return jpeg_finish_decompress(&jpeg_) != FALSE && !errors_.damaged;
    }
    [[nodiscard]] const jpeg_decompress_struct& info() const { return jpeg_; }
    [[nodiscard]] Error refusal(const Path& place) const {
        return Error{fmt::format("is no JPEG that can be read: {}", errors_.text[0] != 0 ? errors_.text : "damaged"),
                     place.string()};
    }

private:
    struct Errors {
        jpeg_error_mgr manager;
        std::jmp_buf back;
        char text[JMSG_LENGTH_MAX];
        bool damaged;
    };

    bool create(Bytes bytes) {
        if (setjmp(errors_.back) != 0) return false;
        jpeg_create_decompress(&jpeg_);
        jpeg_.progress = &progress_;
        jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
        return true;
    }

    Errors errors_{};
    jpeg_progress_mgr progress_{};
    jpeg_decompress_struct jpeg_{};
    bool created_ = false;
};

/// Eighths by which a side may be scaled and still has `least`.
unsigned eighths(std::uint32_t side, std::uint32_t least) {
    for (const unsigned scale : {1u, 2u, 4u})
        if (least > 0 && std::uint64_t{side} * scale / 8 >= least) return scale;
    return 8;
}

Result<Picture> decode_jpeg(Bytes bytes, const Path& place, std::uint32_t channels, std::uint32_t least_width,
                            std::uint32_t least_height, std::uint64_t most) {
    JpegReader reader(bytes);
    if (!reader.head()) return reader.refusal(place);
    const std::uint32_t width = reader.info().image_width, height = reader.info().image_height;
    MILLRACE_TRY(check_size(width, height, most, place));
    if (!reader.start(channels, std::max(eighths(width, least_width), eighths(height, least_height))))
        return reader.refusal(place);
    Picture picture{reader.info().output_width, reader.info().output_height, channels, {}};
    const std::size_t stride = std::size_t{picture.width} * channels;
    if (static_cast<std::uint32_t>(reader.info().output_components) != channels)
        return Error{"is a JPEG of unusual colours", place.string()};
    picture.pixels.resize(stride * picture.height);
    if (!reader.rows(picture.pixels.data(), stride)) return reader.refusal(place);
    return picture;
}

struct PngImage {
    png_image image{};

    explicit PngImage(Bytes bytes) {
        image.version = PNG_IMAGE_VERSION;
        begun = png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) != 0;
    }
    PngImage(const PngImage&) = delete;
    PngImage& operator=(const PngImage&) = delete;
    ~PngImage() { png_image_free(&image); }
    [[nodiscard]] Error refusal(const Path& place) const {
        return Error{fmt::format("is no PNG that can be read: {}", image.message), place.string()};
    }
    bool begun = false;
};

Result<Picture> decode_png(Bytes bytes, const Path& place, std::uint32_t channels, std::uint64_t most) {
    PngImage png(bytes);
    if (!png.begun) return png.refusal(place);
    MILLRACE_TRY(check_size(png.image.width, png.image.height, most, place));
    png.image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    png.image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    Picture picture{png.image.width, png.image.height, channels, {}};
    picture.pixels.resize(std::size_t{picture.width} * picture.height * channels);
    const png_color white{255, 255, 255};
    if (png_image_finish_read(&png.image, &white, picture.pixels.data(), 0, nullptr) == 0) return png.refusal(place);
    return picture;
}

}  // namespace

bool can_read_pictures() { return true; }

Result<PictureHead> picture_head(Bytes bytes, const Path& place) {
    if (is_png(bytes)) {
        const PngImage png(bytes);
        if (!png.begun) return png.refusal(place);
        return PictureHead{png.image.width, png.image.height, (png.image.format & PNG_FORMAT_FLAG_COLOR) != 0};
    }
    if (!is_jpeg(bytes)) return Error{"is neither PNG nor JPEG by its first bytes", place.string()};
    JpegReader reader(bytes);
    if (!reader.head()) return reader.refusal(place);
    return PictureHead{reader.info().image_width, reader.info().image_height, reader.info().num_components > 1};
}

Result<Picture> decode_picture(Bytes bytes, const Path& place, std::uint32_t channels, std::uint32_t least_width,
                               std::uint32_t least_height, std::uint64_t most) {
    if (is_png(bytes)) return decode_png(bytes, place, channels, most);
    if (is_jpeg(bytes)) return decode_jpeg(bytes, place, channels, least_width, least_height, most);
    return Error{"is neither PNG nor JPEG by its first bytes", place.string()};
}

Result<std::string> encode_png(const Picture& picture) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = picture.width;
    image.height = picture.height;
    image.format = picture.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
    std::string bytes(size, '\0');
    if (png_image_write_to_memory(&image, bytes.data(), &size, 0, picture.pixels.data(), 0, nullptr) == 0)
        return Error{fmt::format("cannot write a PNG: {}", image.message)};
    bytes.resize(size);
    return bytes;
}

}  // namespace millrace::io

#pragma once
// What the fuzzer does with one input, and what an ordinary test does with each input of the corpus: the input is a picture.
// Whatever its bytes are, pixels or an error come out, the same ones twice, and of the size that the head says or a part of it.

#include <string_view>

#include "io/picture_file.h"

namespace millrace::fuzz {

inline constexpr std::uint64_t kFuzzedPixels = 1 << 16;  ///< few bytes may stand for many

inline void check_picture(io::Bytes bytes, std::uint32_t channels, std::uint32_t least) {
    const auto head = io::picture_head(bytes, "picture");
    const auto picture = io::decode_picture(bytes, "picture", channels, least, least, kFuzzedPixels),
               again = io::decode_picture(bytes, "picture", channels, least, least, kFuzzedPixels);
    MILLRACE_ASSERT(picture.ok() == again.ok(), "the same picture is read once and once not");
    if (!picture.ok()) {
        MILLRACE_ASSERT(!picture.error().message.empty() && picture.error().place == "picture",
                        "an error without reason or place");
        return;
    }
    MILLRACE_ASSERT(head.ok(), "a picture without a head");
    MILLRACE_ASSERT(picture->width > 0 && picture->height > 0 && picture->channels == channels, "an absurd picture");
    MILLRACE_ASSERT(picture->width <= head->width && picture->height <= head->height, "larger than its head says");
    MILLRACE_ASSERT(picture->width >= std::min(least, head->width) && picture->height >= std::min(least, head->height),
                    "smaller than was asked for");
    MILLRACE_ASSERT(picture->pixels.size() == std::size_t{picture->width} * picture->height * channels, "pixels are missing");
    MILLRACE_ASSERT(picture->pixels == again->pixels, "the same picture has other pixels the second time");
}

inline void read_picture_bytes(std::string_view bytes) {
    for (const std::uint32_t channels : {1u, 3u})
        for (const std::uint32_t least : {0u, 5u}) check_picture(io::bytes_of(bytes), channels, least);
}

}  // namespace millrace::fuzz

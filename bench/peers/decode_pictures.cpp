// Pictures per second that libjpeg-turbo alone decodes: reads the files named on standard input, decodes each to RGB at the scale
// (eighths) that still has WIDTH x HEIGHT pixels, and throws the pixels away.
//   g++ -O2 -std=c++20 decode_pictures.cpp -ljpeg -lpthread -o decode_pictures && ls *.jpg | ./decode_pictures THREADS WIDTH
//   HEIGHT
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <jpeglib.h>

static void decode(const std::string& path, unsigned width, unsigned height) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    jpeg_decompress_struct jpeg{};
    jpeg_error_mgr errors{};
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&jpeg, TRUE);
    jpeg.scale_denom = 8;
    for (jpeg.scale_num = 1; jpeg.scale_num < 8; jpeg.scale_num *= 2)
        if (jpeg.image_width * jpeg.scale_num / 8 >= width && jpeg.image_height * jpeg.scale_num / 8 >= height) break;
    jpeg.out_color_space = JCS_RGB;
    jpeg_start_decompress(&jpeg);
    std::vector<JSAMPLE> pixels(std::size_t{jpeg.output_width} * jpeg.output_height * 3);
    while (jpeg.output_scanline < jpeg.output_height) {
        JSAMPROW row = pixels.data() + std::size_t{jpeg.output_scanline} * jpeg.output_width * 3;
        jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_decompress(&jpeg);
    jpeg_destroy_decompress(&jpeg);
}

int main(int count, char** words) {
    if (count != 4) return 2;
    const unsigned width = std::atoi(words[2]), height = std::atoi(words[3]);
    std::vector<std::string> files;
    for (std::string line; std::getline(std::cin, line);) files.push_back(line);
    std::atomic<std::size_t> next = 0;
    std::vector<std::jthread> threads;
    for (int i = 0; i < std::atoi(words[1]); ++i)
        threads.emplace_back([&] {
            for (std::size_t at; (at = next++) < files.size();) decode(files[at], width, height);
        });
}

#pragma once
// Data as people have it, and runs that are trained on it.

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/folder.h"
#include "io/picture_file.h"

namespace millrace::cli {

using Json = nlohmann::json;

class OwnData : public InFolder {
protected:
    /// Pictures 8 wide and 6 high of two classes that differ in which channel is bright.
    void write_pictures(const std::string& below, int count) const {
        for (int i = 0; i < 2 * count; ++i) {
            io::Picture picture{8, 6, 3, {}};
            for (int p = 0; p < 8 * 6 * 3; ++p)
                picture.pixels.push_back(static_cast<std::uint8_t>((p % 3 == i % 2 ? 200 : 40) + (i * 31 + p * 17) % 50));
            const auto png = io::encode_png(picture);
            ASSERT_TRUE(png.ok());
            const std::string name = below + (i % 2 == 0 ? "/red" : "/green");
            std::filesystem::create_directories(folder_ / name);
            write(name + "/" + std::to_string(i) + ".png", *png);
        }
    }
    Json trained(const std::string& recipe, const std::string& data, const std::string& run,
                 std::vector<std::string> sets) const {
        write("own.toml", recipe);
        std::vector<std::string> words{"train", path("own.toml"),         "--out", path(run), "--json", "--set", "device=cpu",
                                       "--set", "data.path=" + path(data)};
        for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
        const Said said = call(words);
        EXPECT_EQ(said.status, 0) << said.err;
        return said.status == 0 ? base::json_or_throw(said.out) : Json();
    }
};

inline constexpr const char* kCnn =
    "[model]\nname = \"cnn\"\npreset = \"debug\"\nchannels = [4]\nhidden = 8\n[train]\nbatch = 8\n";

}  // namespace millrace::cli

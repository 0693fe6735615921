#include "io/recipe_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

namespace millrace::io {
namespace {

constexpr std::size_t kLargestRecipe = 1 << 20;

struct FileCloser {
    void operator()(std::FILE* file) const { std::fclose(file); }
};

/// Where a recipe lies: as given, else among those that were installed with the program, PREFIX/share/millrace beside PREFIX/bin.
std::filesystem::path place_of_recipe(const std::filesystem::path& given) {
    std::error_code failed;
    if (given.is_absolute() || std::filesystem::exists(given, failed)) return given;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
    const std::filesystem::path installed = program.parent_path().parent_path() / "share/millrace" / given;
    return std::filesystem::is_regular_file(installed, failed) ? installed : given;
}

}  // namespace

base::Result<std::string> read_recipe_file(const std::string& path) {
    const std::unique_ptr<std::FILE, FileCloser> file(std::fopen(place_of_recipe(path).c_str(), "rb"));
    if (file == nullptr) return base::Error{fmt::format("cannot read the recipe: {}", std::strerror(errno)), path};
    std::string text(kLargestRecipe + 1, '\0');
    const std::size_t count = std::fread(text.data(), 1, text.size(), file.get());
    if (std::ferror(file.get()) != 0) return base::Error{fmt::format("cannot read the recipe: {}", std::strerror(errno)), path};
    if (count > kLargestRecipe) return base::Error{"the file is larger than 1 MiB, which no recipe is", path};
    text.resize(count);
    return text;
}

}  // namespace millrace::io

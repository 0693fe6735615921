// Recordings of a build without libsndfile: none.
#include "io/sound_file.h"

namespace millrace::io {

bool can_read_sound() { return false; }

Result<Sound> read_sound(const Path& path, double) {
    return Error{"cannot be read: this millrace was built without libsndfile; install Debian's libsndfile1-dev and build again",
                 path.string()};
}

}  // namespace millrace::io

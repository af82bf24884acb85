# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Build and installation of the package, for colcon (ament_python) and for pip alike."""

from pathlib import Path

from setuptools import find_packages, setup

NAME = "lingbot_map_ros"


def files(folder: str, pattern: str = "*") -> list[str]:
    """Files in a folder of the source tree, as ``data_files`` wants them."""
    return [str(path) for path in sorted(Path(folder).glob(pattern)) if path.is_file()]


setup(
    name=NAME,
    version="0.1.0",
    description="Poses, depth and a map from a camera topic with LingBot-Map, for ROS 2",
    author="The lingbot_map_ros authors",
    maintainer="The lingbot_map_ros authors",
    maintainer_email="maintainers@lingbot-map-ros.invalid",
    license="Apache-2.0",
    python_requires=">=3.10",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={NAME: ["py.typed", "weights/*.safetensors", "weights/SHA256SUMS"]},
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (f"share/{NAME}/launch", files("launch", "*.launch.py")),
        (f"share/{NAME}/config", files("config")),
        # Not console_scripts: a wheel puts those into bin/, where `ros2 run` does not look.
        (f"lib/{NAME}", files("bin")),
    ],
    zip_safe=False,
    install_requires=[
        "numpy>=1.21",
        "pillow>=9.0",
        "pyyaml>=5.4",
        "safetensors>=0.4",
        "torch>=2.3",
        "typing-extensions>=4.5",
    ],
    extras_require={
        # Paged attention on NVIDIA GPUs.
        "cuda": ["flashinfer-python>=0.6.10"],
        # Checkpoints by the name hf://OWNER/REPO/FILE.
        "hub": ["huggingface-hub>=0.25"],
        # The command-line programs: bags, evaluation, plots.
        "replay": [
            "apsw>=3.40",
            "backports.zstd>=1.0",
            "evo>=1.30",
            "lz4>=4.0",
            "matplotlib>=3.6",
            "rosbags>=0.11",
            "ruamel.yaml>=0.17",
            "tqdm>=4.60",
        ],
        # What a ROS distribution brings along and a ROS from wheels does not; PyPI's cv-bridge
        # fails with NumPy 2.3 and OpenCV 5.
        "wheels": ["cv-bridge>=1.13", "numpy<2.3", "opencv-python-headless>=4.8,<5"],
        "test": [
            "catkin-pkg>=0.5",
            'embreex>=2.17.7; platform_machine == "x86_64"',
            "flake8>=6.0",
            "huggingface-hub>=0.25",
            "hypothesis>=6.60",
            "mypy>=1.10",
            "pydocstyle>=6.1",
            "pytest>=7.4",
            "pytest-timeout>=2.1",
            "ruff>=0.9",
            "scipy>=1.8",
        ],
    },
)
